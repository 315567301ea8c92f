"""Number formats of products: BF16, and FP8 where it pays."""
