"""Number formats for any PyTorch model, not only Brimful's: loss scales, 16-bit parameters, running means."""
