"""pi0.5 on packed batches, in the published sizes or others, from public or fresh weights."""
