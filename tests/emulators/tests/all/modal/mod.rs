//! The Modal emulator over its wire.
