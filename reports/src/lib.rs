//! From evidence to numbers. Reads run directories only; knows neither backends nor the runner.

pub mod evidence;
