//! Protobuf that refuses what it does not know: a field that is not in the `.proto` files is a mistake of its sender.

use std::marker::PhantomData;
use std::sync::LazyLock;

use bytes::Buf;
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use super::proto::DESCRIPTORS;
use super::status::violation;

/// Generated code, and a test sees to it that it is what it should be. An empty pool would refuse every request.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());

/// Encodes as usual and decodes strictly. Generated code names it.
pub struct Strict<T, U>(PhantomData<fn(T) -> U>);

impl<T, U> Default for Strict<T, U> {
    fn default() -> Self {
        Strict(PhantomData)
    }
}

impl<T, U> Codec for Strict<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = StrictDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        StrictDecoder(PhantomData)
    }
}

/// The decoder of [`Strict`].
pub struct StrictDecoder<U>(PhantomData<fn() -> U>);

impl<U: Message + Name + Default> Decoder for StrictDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = source.copy_to_bytes(source.remaining());
        let name = U::full_name();
        let malformed = |error: prost::DecodeError| violation(format!("{name}: {error}"));
        let descriptor = POOL.get_message_by_name(&name).ok_or_else(|| Status::internal(format!("no {name}")))?;
        let message = DynamicMessage::decode(descriptor, bytes.clone()).map_err(malformed)?;
        if let Some(field) = unknown_field(&message) {
            return Err(violation(format!("{name}: there is no field {field}")));
        }
        U::decode(bytes).map(Some).map_err(malformed)
    }
}

/// The first field that the descriptors do not have, with the path to it.
fn unknown_field(message: &DynamicMessage) -> Option<String> {
    if let Some(unknown) = message.unknown_fields().next() {
        return Some(format!("{} of {}", unknown.number(), message.descriptor().full_name()));
    }
    message.fields().find_map(|(_, value)| unknown_in(value))
}

fn unknown_in(value: &Value) -> Option<String> {
    match value {
        Value::Message(message) => unknown_field(message),
        Value::List(values) => values.iter().find_map(unknown_in),
        Value::Map(values) => values.values().find_map(unknown_in),
        _ => None,
    }
}
