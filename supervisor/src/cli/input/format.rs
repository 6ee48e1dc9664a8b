//! Recognizes formats by their first bytes: encodings of JSON, and formats that gridpool does not read.
//!
//! Owns the list of formats and what to type instead. May not read grids.

use super::{Cause, Diagnostic};

/// The byte order mark of UTF-8, which some editors write.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
/// The byte order marks of other Unicode encodings.
const WIDE_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
/// The first bytes of a zip; the last of these is an empty zip.
const ZIP_MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// The first bytes of compressed files, and the programs that unpack them.
const PACKED: [(&[u8], &str, &str); 4] = [
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\xfd7zXZ", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
];

/// Whether the bytes are a zip, such as an `.npz`.
pub(in crate::cli) fn is_zip(bytes: &[u8]) -> bool {
    ZIP_MAGICS.iter().any(|magic| bytes.starts_with(magic))
}

/// The text of JSON, without a byte order mark.
pub(super) fn text(bytes: &[u8]) -> Result<&[u8], Box<Diagnostic>> {
    if let Some(text) = bytes.strip_prefix(UTF8_MARK) {
        return Ok(text);
    }
    let is_wide = matches!(bytes, [0, b'[' | b'{' | b' ', ..] | [b'[' | b'{' | b' ', 0, ..]);
    if is_wide || WIDE_MARKS.iter().any(|mark| bytes.starts_with(mark)) {
        return Err(Cause::Utf16.into());
    }
    match PACKED.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        Some(&(_, format, unpack)) => Err(Cause::Packed { format, unpack }.into()),
        None => Ok(bytes),
    }
}
