"""Files -> raw documents: formats, encodings, compressions, spans of large files."""
