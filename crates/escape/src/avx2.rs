//! Escaping with AVX2, in safe code. The caller must check that the processor [supports](is_supported) AVX2.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_or_si128, _mm_shuffle_epi8, _mm_srli_si128, _mm256_and_si256, _mm256_blendv_epi8,
    _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_extracti128_si256, _mm256_max_epu8,
    _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
};

/// How many bytes are classified at a time.
pub(crate) const BLOCK: usize = 32;

/// The length of the longest escape, `\u001f`.
const MAX_ESCAPE: usize = 6;

/// The output space that a block needs. Stores are up to 16 bytes wide, so the last one may write past the escaped block;
/// the next block overwrites these bytes.
pub(crate) const OUTPUT_SPACE: usize = BLOCK * MAX_ESCAPE + 16;

/// The letters of the short escapes such as `\n`, indexed by the control characters below 16; 0 for a character without a
/// short escape. The table has two equal halves, because a shuffle indexes the halves of a vector separately.
const LETTERS: [u8; 32] = *b"\0\0\0\0\0\0\0\0btn\0fr\0\0\0\0\0\0\0\0\0\0btn\0fr\0\0";

/// The shuffle that leaves a gap before each byte to escape, for eight bytes. Indexed by a bit set of the bytes to escape.
static SPREAD: [[u8; 16]; 256] = spread();

/// The backslashes in these gaps, indexed by the same bit set.
static BACKSLASHES: [[u8; 16]; 256] = backslashes();

/// The escaped form of each byte. The last element of an entry is the length of the escaped form.
static ESCAPES: [[u8; 8]; 256] = escapes();

/// Whether the processor has the features that [`escape`] is compiled for.
#[inline]
pub(crate) fn is_supported() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

/// Escapes the text until it ends or the buffer has less than [`OUTPUT_SPACE`] left. Returns the number of bytes read
/// and written.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn escape(text: &[u8], out: &mut [u8]) -> (usize, usize) {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let mut written = 0;
    for (index, block) in blocks.iter().enumerate() {
        let Some(space) = out[written..].first_chunk_mut() else { return (index * BLOCK, written) };
        written += escape_block(block, space);
    }
    let read = blocks.len() * BLOCK;
    let Some(space) = out[written..].first_chunk_mut() else { return (read, written) };
    (text.len(), written + escape_bytes(rest, space))
}

/// Escapes a block. Returns the number of bytes written.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn escape_block(block: &[u8; BLOCK], out: &mut [u8; OUTPUT_SPACE]) -> usize {
    let Some(Classified { letters, special }) = classify(block) else { return escape_bytes(block, out) };
    if special == 0 {
        out[..BLOCK].copy_from_slice(block);
        return BLOCK;
    }
    let (low, high) = (_mm256_castsi256_si128(letters), _mm256_extracti128_si256::<1>(letters));
    // The output offset of the byte at `index`: each escaped byte before it takes two bytes.
    let offset = |index: u32| index as usize + (special & !(u32::MAX << index)).count_ones() as usize;
    escape_eight(low, special, &mut out[..16]);
    escape_eight(_mm_srli_si128::<8>(low), special >> 8, &mut out[offset(8)..][..16]);
    escape_eight(high, special >> 16, &mut out[offset(16)..][..16]);
    escape_eight(_mm_srli_si128::<8>(high), special >> 24, &mut out[offset(24)..][..16]);
    BLOCK + special.count_ones() as usize
}

/// A block whose escapes all have two bytes.
pub(crate) struct Classified {
    /// The bytes, with the letters of their escapes instead of control characters.
    pub(crate) letters: __m256i,
    /// The set of the bytes that a backslash precedes.
    pub(crate) special: u32,
}

/// Classifies the bytes of a block; `None` if a control character has no short escape.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn classify(block: &[u8; BLOCK]) -> Option<Classified> {
    let bytes: __m256i = bytemuck::cast(*block);
    let last = _mm256_set1_epi8(0x1f);
    let control = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, last), last);
    let quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'"' as i8));
    let backslash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
    let special = _mm256_or_si256(control, _mm256_or_si256(quote, backslash));
    // The letters of the short escapes of control characters. The shuffle uses only the low four bits of an index, so it
    // also gives letters for control characters from 16 on, which have no short escape; `high` excludes them.
    let letters = _mm256_and_si256(_mm256_shuffle_epi8(bytemuck::cast(LETTERS), bytes), control);
    let none = _mm256_cmpeq_epi8(letters, _mm256_setzero_si256());
    let high = _mm256_cmpgt_epi8(bytes, _mm256_set1_epi8(0x0f));
    let unicode = _mm256_and_si256(control, _mm256_or_si256(none, high));
    (_mm256_movemask_epi8(unicode) == 0).then(|| Classified {
        letters: _mm256_blendv_epi8(bytes, letters, control),
        special: _mm256_movemask_epi8(special) as u32,
    })
}

/// Writes the first eight of `bytes`, with a backslash before each byte in the bit set `set`.
#[inline]
#[target_feature(enable = "avx2")]
fn escape_eight(bytes: __m128i, set: u32, out: &mut [u8]) {
    let set = usize::from(set as u8);
    let spread = _mm_shuffle_epi8(bytes, bytemuck::cast(SPREAD[set]));
    let whole: [u8; 16] = bytemuck::cast(_mm_or_si128(spread, bytemuck::cast(BACKSLASHES[set])));
    out.copy_from_slice(&whole);
}

/// Escapes up to 32 bytes one at a time. Returns the number of bytes written.
pub(crate) fn escape_bytes(bytes: &[u8], out: &mut [u8; OUTPUT_SPACE]) -> usize {
    let mut written = 0;
    for &byte in bytes {
        let escape = ESCAPES[usize::from(byte)];
        out[written..written + escape.len()].copy_from_slice(&escape);
        written += usize::from(escape[7]);
    }
    written
}

const fn spread() -> [[u8; 16]; 256] {
    // A shuffle writes 0 for an index whose highest bit is set.
    let mut table = [[0x80; 16]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut place, mut byte) = (0, 0);
        while byte < 8 {
            place += set >> byte & 1;
            table[set][place] = byte as u8;
            place += 1;
            byte += 1;
        }
        set += 1;
    }
    table
}

const fn backslashes() -> [[u8; 16]; 256] {
    let mut table = [[0; 16]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut place, mut byte) = (0, 0);
        while byte < 8 {
            if set >> byte & 1 == 1 {
                table[set][place] = b'\\';
                place += 1;
            }
            place += 1;
            byte += 1;
        }
        set += 1;
    }
    table
}

const fn escapes() -> [[u8; 8]; 256] {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    let mut table = [[0; 8]; 256];
    let mut index = 0;
    while index < 256 {
        let byte = index as u8;
        table[index] = match byte {
            b'"' | b'\\' => [b'\\', byte, 0, 0, 0, 0, 0, 2],
            0..0x20 if LETTERS[index & 15] != 0 && byte < 16 => [b'\\', LETTERS[index], 0, 0, 0, 0, 0, 2],
            0..0x20 => [b'\\', b'u', b'0', b'0', HEX[index >> 4], HEX[index & 15], 0, 6],
            _ => [byte, 0, 0, 0, 0, 0, 0, 1],
        };
        index += 1;
    }
    table
}
