"""The integer forms of ops between dequantised and quantised values."""
