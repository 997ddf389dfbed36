//! WAV recordings as inputs: 16-bit PCM, one channel, as many samples as the input has elements.

use hound::{SampleFormat, WavReader};
use kiln_core::DType;

use super::{Elements, Wanted};

/// The elements of a recording for an input. The problem is one sentence without the file's name.
pub(super) fn read(file: &[u8], wanted: &Wanted) -> Result<Elements, String> {
    let failed = |e: hound::Error| format!("not a readable WAV file: {e}; save or copy the recording again");
    let mut reader = WavReader::new(file).map_err(failed)?;
    let spec = reader.spec();
    if spec.channels != 1 || spec.bits_per_sample != 16 || spec.sample_format != SampleFormat::Int {
        let format = if spec.sample_format == SampleFormat::Int { "integer" } else { "float" };
        return Err(format!(
            "it has {} channels of {}-bit {format} samples, and one channel of 16-bit integers (PCM) is read; convert it first",
            spec.channels, spec.bits_per_sample
        ));
    }
    if u64::from(reader.len()) != wanted.elements() {
        return Err(format!(
            "{} is {}, {} elements, but the file has {} samples; cut or pad it to {} samples, \
             or compute the features the model takes and give them as .npy",
            wanted.who,
            wanted.text,
            wanted.elements(),
            reader.len(),
            wanted.elements()
        ));
    }
    let rate = spec.sample_rate;
    // How many there are is the file's claim: memory grows with those that come.
    let mut samples = Vec::new();
    for sample in reader.samples::<i16>() {
        samples.push(sample.map_err(failed)?);
    }
    if wanted.dtype == DType::I16 {
        let data = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        return Ok((data, vec![format!("samples at {rate} Hz are taken as they are")]));
    }
    let reals: Vec<f64> = samples.iter().map(|&sample| f64::from(sample) / 32768.0).collect();
    let (data, stored) = wanted.store(&reals)?;
    let mut notes = vec![format!("samples at {rate} Hz are taken as numbers -1..1 (sample / 32768)")];
    notes.extend(stored);
    Ok((data, notes))
}

#[cfg(test)]
#[path = "audio_tests.rs"]
mod tests;
