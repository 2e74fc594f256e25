"""Who takes part: processes of metadata, brokers, and clients."""
