//! `trials.parquet`: attempts as columns, for query engines.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::TrialRow;
use super::columns::{self, Column};

/// Attempts held in memory until they are written as columns.
const BATCH: usize = 256;

/// Most rows of a row group: readers take or skip it as a whole, the writer holds it in memory, encoded.
const ROW_GROUP: usize = 16 * 1024;

/// Writes attempts as columns, one per row.
pub(super) struct TrialsParquet<W: Write + Send> {
    columns: Vec<Column>,
    schema: SchemaRef,
    rows: Vec<TrialRow>,
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> TrialsParquet<W> {
    /// Begins the file that is written to `writer`.
    pub(super) fn new(writer: W) -> io::Result<Self> {
        let columns = columns::all();
        let schema: SchemaRef = Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .build();
        let writer = ArrowWriter::try_new(writer, Arc::clone(&schema), Some(properties))?;
        Ok(Self { columns, schema, rows: Vec::with_capacity(BATCH), writer })
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: TrialRow) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() < BATCH { Ok(()) } else { self.write_rows() }
    }

    /// Ends the file, and gives the writer back.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.write_rows()?;
        Ok(self.writer.into_inner()?)
    }

    fn write_rows(&mut self) -> io::Result<()> {
        let arrays = self.columns.iter().map(|column| column.array(&self.rows)).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays).map_err(io::Error::other)?;
        self.rows.clear();
        Ok(self.writer.write(&batch)?)
    }
}
