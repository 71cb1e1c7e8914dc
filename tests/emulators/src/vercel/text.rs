//! Bytes of a stream become text piece by piece.

/// Decodes UTF-8 that arrives in pieces; what is not UTF-8 becomes U+FFFD and is lost, as at the vendor.
#[derive(Default)]
pub(super) struct Decoder {
    /// The beginning of a character whose end has not arrived: at most three bytes.
    rest: Vec<u8>,
}

impl Decoder {
    /// The text of all characters that are complete.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.rest);
        let (mut text, mut left) = (String::new(), input.as_slice());
        while let Err(error) = std::str::from_utf8(left) {
            let (valid, after) = left.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            let Some(wrong) = error.error_len() else {
                self.rest = after.to_vec();
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            left = after.get(wrong..).unwrap_or_default();
        }
        text.push_str(&String::from_utf8_lossy(left));
        text
    }

    /// What is left at the end of the stream.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_decode_to_what_the_whole_does(bytes in proptest::collection::vec(any::<u8>(), 0..64), size in 1usize..8) {
            let mut decoder = Decoder::default();
            let mut text: String = bytes.chunks(size).map(|piece| decoder.decode(piece)).collect();
            text.push_str(&decoder.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn text_survives_any_cut(text in ".{0,32}", size in 1usize..5) {
            let mut decoder = Decoder::default();
            let decoded: String = text.as_bytes().chunks(size).map(|piece| decoder.decode(piece)).collect();
            prop_assert_eq!(decoded, text);
        }
    }
}
