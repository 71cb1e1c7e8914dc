//! Row files in Parquet. Rows come out as JSON objects, so that they are read by the same code as JSON rows; binary
//! values become base64 text.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::DataType;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use serde_json::{Map, Value};

use super::guard;
use crate::problem::Fault;

/// Rows read at one time while listing ids.
const BATCH: usize = 64;

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) group: usize,
    pub(crate) row: usize,
    /// In the file, from 1.
    pub(crate) number: u64,
}

/// A row and where it is.
pub(crate) type Found = (Position, Map<String, Value>);

/// An open file with its footer read.
#[derive(Debug)]
pub(crate) struct Table {
    file: File,
    metadata: ArrowReaderMetadata,
}

impl Table {
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|error| Fault::io("read", path, &error))?;
        guarded(|| {
            // The embedded Arrow schema would only bring in dictionary and large types.
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let metadata = ArrowReaderMetadata::load(&file, options).map_err(broken)?;
            Ok(metadata)
        })
        .map(|metadata| Self { file, metadata })
    }

    /// True if there is a top-level column of this name.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.metadata.schema().column_with_name(column).is_some()
    }

    /// Reads one row whole.
    pub(crate) fn row(&self, position: Position) -> Result<Map<String, Value>, Fault> {
        let gone = || Fault::new("the row is not there any more", "do not change the file while it is in use");
        guarded(|| {
            let reader = self.builder()?.with_row_groups(vec![position.group]);
            let mut reader = reader.with_offset(position.row).with_limit(1).build().map_err(broken)?;
            let batch = reader.next().ok_or_else(gone)?.map_err(broken)?;
            object(&StructArray::from(batch), 0).ok_or_else(gone)
        })
    }

    fn builder(&self) -> Result<ParquetRecordBatchReaderBuilder<File>, Fault> {
        let file = self.file.try_clone().map_err(broken)?;
        Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone()))
    }

    fn groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }
}

/// The rows of some columns, one row group after the other.
pub(crate) struct Rows {
    table: Arc<Table>,
    columns: &'static [&'static str],
    group: usize,
    row: usize,
    number: u64,
    reader: Option<ParquetRecordBatchReader>,
    batch: Option<(StructArray, usize)>,
    ended: bool,
}

impl Iterator for Rows {
    type Item = Result<Found, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let found = guarded(|| self.advance()).transpose();
        self.ended = !matches!(found, Some(Ok(_)));
        found
    }
}

impl Rows {
    /// The rows with these columns (dotted paths; those that do not exist count for nothing), in order.
    pub(crate) fn new(table: Arc<Table>, columns: &'static [&'static str]) -> Self {
        Self { table, columns, group: 0, row: 0, number: 0, reader: None, batch: None, ended: false }
    }

    fn advance(&mut self) -> Result<Option<Found>, Fault> {
        loop {
            if let Some((batch, next)) = &mut self.batch {
                if let Some(object) = object(batch, *next) {
                    let position = Position { group: self.group, row: self.row, number: self.number + 1 };
                    *next += 1;
                    self.row += 1;
                    self.number += 1;
                    return Ok(Some((position, object)));
                }
                self.batch = None;
            }
            match self.reader.as_mut().and_then(Iterator::next) {
                Some(batch) => self.batch = Some((StructArray::from(batch.map_err(broken)?), 0)),
                None => {
                    if self.reader.is_some() {
                        self.group += 1;
                        self.row = 0;
                    }
                    if self.group >= self.table.groups() {
                        return Ok(None);
                    }
                    let builder = self.table.builder()?.with_row_groups(vec![self.group]).with_batch_size(BATCH);
                    let mask = ProjectionMask::columns(builder.parquet_schema(), self.columns.iter().copied());
                    self.reader = Some(builder.with_projection(mask).build().map_err(broken)?);
                }
            }
        }
    }
}

/// Runs code of the parquet library, which panics on some broken files (seen with 59.3.2).
fn guarded<T>(read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    guard::guarded(read, || broken("its contents contradict each other"))
}

fn broken(error: impl std::fmt::Display) -> Fault {
    Fault::new(format!("the Parquet file is broken: {error}"), "fetch or write it again")
}

/// A row as an object; null values are left out. None if there is no such row.
fn object(columns: &StructArray, row: usize) -> Option<Map<String, Value>> {
    if row >= columns.len() {
        return None;
    }
    let pairs = columns.fields().iter().zip(columns.columns());
    Some(
        pairs
            .map(|(field, column)| (field.name().clone(), value(column, row)))
            .filter(|(_, value)| !value.is_null())
            .collect(),
    )
}

/// One value. Types that no known data set uses become null.
fn value(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    let list = |items: &dyn Array| (0..items.len()).map(|item| value(items, item)).collect();
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).into(),
        DataType::Utf8View => column.as_string_view().value(row).into(),
        DataType::Binary => STANDARD.encode(column.as_binary::<i32>().value(row)).into(),
        DataType::LargeBinary => STANDARD.encode(column.as_binary::<i64>().value(row)).into(),
        DataType::BinaryView => STANDARD.encode(column.as_binary_view().value(row)).into(),
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::List(_) => list(&column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row)),
        DataType::Struct(_) => object(column.as_struct(), row).map_or(Value::Null, Value::Object),
        _ => Value::Null,
    }
}
