//! Writes the Protobuf wire format, as `sidecar/bronze_sidecar/envelope/wire.py` does.

const VARINT: u32 = 0;
const DELIMITED: u32 = 2;

pub fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7F {
        out.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    out.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7F).expect("it has seven bits")
}

fn push_head(out: &mut Vec<u8>, number: u32, length: usize) {
    push_varint(out, u64::from(number << 3 | DELIMITED));
    push_varint(out, length as u64);
}

/// Writes a sub-message, also if it is empty: it is then still there.
pub fn push_delimited(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    push_head(out, number, content.len());
    out.extend_from_slice(content);
}

/// Writes a text; an empty one is left out, as proto3 does.
pub fn push_text(out: &mut Vec<u8>, number: u32, text: &str) {
    if !text.is_empty() {
        push_delimited(out, number, text.as_bytes());
    }
}

/// Writes a whole number, an enum or a flag; zero is left out, as proto3 does.
pub fn push_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        push_varint(out, u64::from(number << 3 | VARINT));
        push_varint(out, value);
    }
}

#[expect(
    clippy::cast_sign_loss,
    reason = "Protobuf writes a negative number as if it had no sign"
)]
/// Writes a time; what is zero of it is left out, as proto3 does.
pub fn push_time(out: &mut Vec<u8>, number: u32, seconds: i64, nanos: u32) {
    let mut content = Vec::with_capacity(17);
    push_integer(&mut content, 1, seconds as u64);
    push_integer(&mut content, 2, u64::from(nanos));
    push_delimited(out, number, &content);
}

/// Writes the entry `event_id` of an envelope's meta.
pub fn push_id(out: &mut Vec<u8>, id: &str) {
    const KEY: &[u8] = b"\x0A\x08event_id\x12";
    // No id is so long that a length would need a second byte.
    let length = u8::try_from(id.len()).expect("ids have less than 100 bytes");
    let key_length = u8::try_from(KEY.len()).expect("it is short");
    out.extend_from_slice(&[0x52, key_length + 1 + length]);
    out.extend_from_slice(KEY);
    out.push(length);
    out.extend_from_slice(id.as_bytes());
}
