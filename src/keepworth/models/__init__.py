"""Language models and encoders: the engine in this process, engines behind HTTP, model files."""
