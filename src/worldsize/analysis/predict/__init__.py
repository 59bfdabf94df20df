"""What a run says of world sizes, links, strategies, batches and buckets that it did not measure (method.md §14)."""
