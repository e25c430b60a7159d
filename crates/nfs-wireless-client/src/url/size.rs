//! Sizes as people type them.

use nfs_proto::config::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES};

/// Parses a size in bytes: a number with an optional `K`, `M` or `G` (1024).
///
/// # Errors
/// What it looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size in bytes such as 512, 8K or 1M".to_owned();
    let (number, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_u64 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    if value >= u64::MAX as f64 || value.fract() != 0.0 {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// Parses the size of a block, in bytes.
///
/// # Errors
/// What it looks like.
pub fn parse_block(text: &str) -> Result<u32, String> {
    let size = parse_max_block(text)?;
    if size.is_multiple_of(MIN_BLOCK_BYTES) {
        Ok(size)
    } else {
        Err(format!("must be a multiple of {MIN_BLOCK_BYTES}"))
    }
}

/// Parses the bytes that a block may have at most: any number that a block of the least size fits.
///
/// # Errors
/// What it looks like.
pub fn parse_max_block(text: &str) -> Result<u32, String> {
    match u32::try_from(parse_size(text)?) {
        Ok(size) if size < MIN_BLOCK_BYTES => Err(format!("must be at least {MIN_BLOCK_BYTES}")),
        Ok(size) if size <= MAX_BLOCK_BYTES => Ok(size),
        Ok(_) | Err(_) => Err("must be at most 1M".to_owned()),
    }
}
