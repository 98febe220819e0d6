//! Escaping with AVX-512, in safe code. The caller must check that the processor [supports](is_supported) it.
//!
//! A backslash is put before every byte, and those that are not needed are removed by one instruction, so the time does
//! not depend on the text and no branch is mispredicted.

use std::arch::x86_64::{
    __m256i, _mm512_castsi512_si256, _mm512_cvtepu8_epi16, _mm512_extracti64x4_epi64,
    _mm512_maskz_compress_epi8, _mm512_or_si512, _mm512_set1_epi16, _mm512_slli_epi16, _pdep_u64,
};

use crate::avx2::{BLOCK, Classified, OUTPUT_SPACE, classify, escape_bytes};

/// The positions of the backslashes in a block in which one precedes every byte, and of the bytes.
const BACKSLASHES: u64 = 0x5555_5555_5555_5555;
const BYTES: u64 = !BACKSLASHES;

/// Whether the processor has the features that [`escape`] is compiled for.
#[inline]
pub(crate) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

/// Escapes the text until it ends or the buffer is full. Returns the number of bytes read and written.
#[target_feature(enable = "avx512vbmi2,avx512bw,avx512f,avx2,bmi2,popcnt")]
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
#[target_feature(enable = "avx512vbmi2,avx512bw,avx512f,avx2,bmi2,popcnt")]
fn escape_block(block: &[u8; BLOCK], out: &mut [u8; OUTPUT_SPACE]) -> usize {
    let Some(Classified { letters, special }) = classify(block) else { return escape_bytes(block, out) };
    // The low byte of each pair comes first.
    let bytes = _mm512_slli_epi16::<8>(_mm512_cvtepu8_epi16(letters));
    let pairs = _mm512_or_si512(bytes, _mm512_set1_epi16(b'\\' as i16));
    let needed = _pdep_u64(special.into(), BACKSLASHES) | BYTES;
    let escaped = _mm512_maskz_compress_epi8(needed, pairs);
    let halves: [__m256i; 2] = [_mm512_castsi512_si256(escaped), _mm512_extracti64x4_epi64::<1>(escaped)];
    let [low, high]: [[u8; BLOCK]; 2] = halves.map(bytemuck::cast);
    out[..BLOCK].copy_from_slice(&low);
    out[BLOCK..2 * BLOCK].copy_from_slice(&high);
    BLOCK + special.count_ones() as usize
}
