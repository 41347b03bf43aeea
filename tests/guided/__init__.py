"""Coverage-guided fuzzing of decoders with atheris: bytes in, no crash out, and two ways to read them agree."""
