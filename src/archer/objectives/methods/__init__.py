"""One small pure function a method: a clean batch and a config in, undivided loss terms out."""
