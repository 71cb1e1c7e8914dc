//! Rows as Parquet columns.

use std::fs::File;
use std::io;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

/// Bytes after which a row group is closed, so that memory stays bounded.
const GROUP_BYTES: usize = 64 << 20;

/// One row: names and arrays of length 1, in order.
#[derive(Default)]
pub struct Columns(Vec<(&'static str, ArrayRef)>);

impl Columns {
    pub(super) fn text(mut self, name: &'static str, text: &str) -> Self {
        self.0.push((name, Arc::new(StringArray::from_iter_values([text]))));
        self
    }

    pub(super) fn binary(mut self, name: &'static str, bytes: &[u8]) -> Self {
        self.0.push((name, Arc::new(BinaryArray::from_iter_values([bytes]))));
        self
    }

    pub(super) fn texts(mut self, name: &'static str, texts: &[String]) -> Self {
        let mut list = ListBuilder::new(StringBuilder::new());
        list.append_value(texts.iter().map(Some));
        self.0.push((name, Arc::new(list.finish())));
        self
    }

    fn batch(self) -> Result<RecordBatch, ParquetError> {
        Ok(RecordBatch::try_from_iter(self.0)?)
    }
}

/// A Parquet file being written.
pub(super) struct Writer(Box<ArrowWriter<File>>);

impl Writer {
    /// Begins a file with the columns of this row.
    pub(super) fn new(file: File, first: &Columns) -> io::Result<Self> {
        let level = ZstdLevel::try_new(9).map_err(io::Error::other)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            // The library's own version would change the file with every update.
            .set_created_by("sandbox-bench".to_owned())
            .build();
        let schema = Columns(first.0.clone()).batch().map_err(io::Error::other)?.schema();
        let writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(io::Error::other)?;
        Ok(Self(Box::new(writer)))
    }

    pub(super) fn push(&mut self, row: Columns) -> io::Result<()> {
        let batch = row.batch().map_err(io::Error::other)?;
        self.0.write(&batch).map_err(io::Error::other)?;
        if self.0.in_progress_size() > GROUP_BYTES {
            self.0.flush().map_err(io::Error::other)?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.0.close().map(|_| ()).map_err(io::Error::other)
    }
}
