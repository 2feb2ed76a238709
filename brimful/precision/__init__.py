"""Number formats for any PyTorch model, not only Brimful's: loss scales and 16-bit parameters."""
