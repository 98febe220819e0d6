//! Escaping with AVX2. All of it is checked by the compiler but whether the processor has AVX2.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_or_si128, _mm_shuffle_epi8, _mm_srli_si128, _mm256_and_si256, _mm256_blendv_epi8,
    _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_extracti128_si256, _mm256_max_epu8,
    _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
};

/// How many bytes are looked at at a time.
const BLOCK: usize = 32;

/// The longest that one byte becomes.
const LONGEST: usize = 6;

/// Room for what a block becomes, and for what is written behind it to be overwritten.
const ROOM: usize = BLOCK * LONGEST + 16;

/// The letters behind the backslash for those control characters that have one, twice.
const LETTERS: [u8; 32] = *b"\0\0\0\0\0\0\0\0btn\0fr\0\0\0\0\0\0\0\0\0\0btn\0fr\0\0";

/// For each set of eight bytes that need a backslash: where each of them goes, with a gap before it.
static SPREAD: [[u8; 16]; 256] = spread();

/// The backslashes that go into these gaps.
static BACKSLASHES: [[u8; 16]; 256] = backslashes();

/// What each byte becomes, and how long that is in the last place.
static ESCAPES: [[u8; 8]; 256] = escapes();

/// Whether the processor has what [`escape`] is compiled for.
pub(crate) fn is_possible() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

/// Writes as much of the text as there is room for. How much was read, and how much was written.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn escape(text: &[u8], out: &mut [u8]) -> (usize, usize) {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let mut written = 0;
    for (index, block) in blocks.iter().enumerate() {
        let Some(room) = out[written..].first_chunk_mut() else { return (index * BLOCK, written) };
        written += widen(block, room);
    }
    let read = blocks.len() * BLOCK;
    let Some(room) = out[written..].first_chunk_mut() else { return (read, written) };
    (text.len(), written + one_by_one(rest, room))
}

/// Writes what a block becomes. How long that is.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn widen(block: &[u8; BLOCK], out: &mut [u8; ROOM]) -> usize {
    let bytes: __m256i = bytemuck::cast(*block);
    let last = _mm256_set1_epi8(0x1f);
    let control = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, last), last);
    let quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'"' as i8));
    let backslash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
    let special = _mm256_or_si256(control, _mm256_or_si256(quote, backslash));
    let special = _mm256_movemask_epi8(special) as u32;
    if special == 0 {
        out[..BLOCK].copy_from_slice(block);
        return BLOCK;
    }
    // A control character gives way to its letter. Those from 16 on have none, and the table repeats.
    let letters = _mm256_and_si256(_mm256_shuffle_epi8(bytemuck::cast(LETTERS), bytes), control);
    let none = _mm256_cmpeq_epi8(letters, _mm256_setzero_si256());
    let high = _mm256_cmpgt_epi8(bytes, _mm256_set1_epi8(0x0f));
    let bare = _mm256_and_si256(control, _mm256_or_si256(none, high));
    if _mm256_movemask_epi8(bare) != 0 {
        return one_by_one(block, out);
    }
    let bytes = _mm256_blendv_epi8(bytes, letters, control);
    let (low, high) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
    let before = |places: u32| places as usize + (special & !(u32::MAX << places)).count_ones() as usize;
    spread_out(low, special, &mut out[..16]);
    spread_out(_mm_srli_si128::<8>(low), special >> 8, &mut out[before(8)..][..16]);
    spread_out(high, special >> 16, &mut out[before(16)..][..16]);
    spread_out(_mm_srli_si128::<8>(high), special >> 24, &mut out[before(24)..][..16]);
    BLOCK + special.count_ones() as usize
}

/// Writes the first eight bytes with backslashes before those of the set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_out(bytes: __m128i, set: u32, out: &mut [u8]) {
    let set = usize::from(set as u8);
    let spread = _mm_shuffle_epi8(bytes, bytemuck::cast(SPREAD[set]));
    let whole: [u8; 16] = bytemuck::cast(_mm_or_si128(spread, bytemuck::cast(BACKSLASHES[set])));
    out.copy_from_slice(&whole);
}

/// Writes up to 32 bytes one after the other.
fn one_by_one(bytes: &[u8], out: &mut [u8; ROOM]) -> usize {
    let mut written = 0;
    for &byte in bytes {
        let escape = ESCAPES[usize::from(byte)];
        out[written..written + escape.len()].copy_from_slice(&escape);
        written += usize::from(escape[7]);
    }
    written
}

const fn spread() -> [[u8; 16]; 256] {
    // What has the highest bit set becomes zero.
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
