//! Which ranges activations take.

use std::fmt;
use std::str::FromStr;

use kiln_core::DType;
use kiln_planner::graph::{Graph, Source, ValueId};

use super::QuantizeError;
use super::histogram::Histogram;

/// How an activation's range follows from what was observed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Method {
    /// From the least value to the greatest.
    #[default]
    MinMax,
    /// The middle so many percent of the values; half of the rest is cut off at either end.
    Percentile(f64),
}

impl FromStr for Method {
    type Err = QuantizeError;

    fn from_str(text: &str) -> Result<Method, QuantizeError> {
        if text == "minmax" {
            return Ok(Method::MinMax);
        }
        let percent = text.strip_prefix("percentile:").and_then(|p| p.parse::<f64>().ok());
        let percent = percent.filter(|p| (50.0..=100.0).contains(p) && *p > 50.0);
        percent.map(Method::Percentile).ok_or_else(|| QuantizeError::Method(text.to_owned()))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::MinMax => f.write_str("minmax"),
            Method::Percentile(percent) => write!(f, "percentile:{percent}"),
        }
    }
}

/// An activation's range in real numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// The least value.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

/// What was observed of each float32 value of a graph. The same values give the same ranges in whatever
/// order they come.
#[derive(Clone, Debug)]
pub struct Calibration {
    seen: Vec<Histogram>,
}

impl Calibration {
    /// Nothing observed yet of `graph`, whose values' numbers count from now on.
    pub fn new(graph: &Graph) -> Calibration {
        Calibration { seen: vec![Histogram::default(); graph.values.len()] }
    }

    /// Counts the elements that value `id` of `graph` had in a run: `data`, little-endian. Values of
    /// other types than float32 are passed over.
    ///
    /// # Errors
    ///
    /// An element is not finite.
    pub fn observe(&mut self, graph: &Graph, id: ValueId, data: &[u8]) -> Result<(), QuantizeError> {
        let Some(seen) = self.seen.get_mut(id.index()) else { return Ok(()) };
        if graph.value(id).ty.dtype != DType::F32 {
            return Ok(());
        }
        for (element, bytes) in data.chunks_exact(4).enumerate() {
            let value = bytes.try_into().map_or(0.0, f32::from_le_bytes);
            if !value.is_finite() {
                let tensor = graph.value(id).name.clone();
                let constant = matches!(graph.value(id).source, Source::Constant(_));
                return Err(QuantizeError::NotFinite { tensor, element, value, constant });
            }
            seen.add(value);
        }
        Ok(())
    }

    /// The range that was observed of value `id`; `None` where nothing was.
    pub fn range(&self, id: ValueId, method: Method) -> Option<Range> {
        let seen = self.seen.get(id.index())?;
        let ends = match method {
            Method::MinMax => seen.extremes(),
            Method::Percentile(percent) => seen.without_tails((100.0 - percent) / 200.0),
        };
        ends.map(|(low, high)| Range { low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_planner::graph::{Quant, tensor_type};

    #[test]
    fn methods_are_read_as_they_are_written() {
        for (text, method) in [("minmax", Method::MinMax), ("percentile:99.9", Method::Percentile(99.9))] {
            assert_eq!(text.parse(), Ok(method));
            assert_eq!(method.to_string(), text);
        }
        for text in ["", "max", "percentile", "percentile:", "percentile:50", "percentile:100.1", "percentile:NaN"] {
            assert!(text.parse::<Method>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_finite_is_named() {
        let mut graph = Graph::new("g");
        let x = graph.add_input("the input", tensor_type(DType::F32, &[3]).unwrap(), Quant::default());
        let mut calibration = Calibration::new(&graph);
        let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
        calibration.observe(&graph, x, &bytes([1.0, -2.0, 0.5])).unwrap();
        assert_eq!(calibration.range(x, Method::MinMax), Some(Range { low: -2.0, high: 1.0 }));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = calibration.observe(&graph, x, &bytes([0.0, 0.0, value])).unwrap_err();
            let said = error.to_string();
            assert!(said.starts_with(&format!("tensor 'the input': element 2 is {value}; the sample")), "{said}");
        }
    }
}
