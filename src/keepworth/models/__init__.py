"""Language models and encoders: the in-process engine, HTTP engines, model files."""
