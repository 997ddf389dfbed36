//! The step records replay firmware writes.

/// What one step of one case wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The case, counted from 0.
    pub case: u32,
    /// The step's index in its plan entry.
    pub step: u32,
    /// The bytes it wrote.
    pub bytes: Vec<u8>,
}

/// Records that end too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {record} is cut short: expected {expected} more bytes, found {found}")]
pub struct DumpError {
    /// The record, counted from 0.
    pub record: usize,
    /// Bytes the record should go on for.
    pub expected: usize,
    /// Bytes that were left.
    pub found: usize,
}

/// The records of a dump file: case, step and length as little-endian `u32`, then the bytes.
///
/// # Errors
///
/// [`DumpError`] when the last record is not whole.
pub fn parse_dump(mut bytes: &[u8]) -> Result<Vec<StepRecord>, DumpError> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let [case, step, length] = [(); 3].map(|()| take(&mut bytes, 4, records.len()));
        let length = number(length?) as usize;
        records.push(StepRecord {
            case: number(case?),
            step: number(step?),
            bytes: take(&mut bytes, length, records.len())?.to_vec(),
        });
    }
    Ok(records)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize, record: usize) -> Result<&'a [u8], DumpError> {
    let (head, tail) =
        bytes.split_at_checked(count).ok_or(DumpError { record, expected: count, found: bytes.len() })?;
    *bytes = tail;
    Ok(head)
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_cut_ones_refused() {
        let file = [&[0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 10, 20][..], &[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
        let records = parse_dump(&file).unwrap();
        assert_eq!(records[0], StepRecord { case: 0, step: 1, bytes: vec![10, 20] });
        assert_eq!(records[1], StepRecord { case: 1, step: 256, bytes: vec![] });
        for cut in (0..file.len()).filter(|cut| ![0, 14].contains(cut)) {
            assert!(parse_dump(&file[..cut]).is_err(), "accepted {cut} bytes");
        }
        let error = parse_dump(&file[..13]).unwrap_err();
        assert_eq!(error, DumpError { record: 0, expected: 2, found: 1 });
    }

    #[test]
    fn a_length_beyond_the_file_is_refused() {
        let error = parse_dump(&[0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]).unwrap_err();
        assert_eq!(error.expected, u32::MAX as usize);
    }
}
