"""Services that commands share: values, topics and work queues, in memory or in a store."""
