"""The ground floor: errors, text, arrays, statistics, optional packages, HTTP and model files. All other rooms use it."""
