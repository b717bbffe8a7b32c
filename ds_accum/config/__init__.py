"""From config text to a checked DeepSpeed config: `document` reads and locates, the other modules judge."""
