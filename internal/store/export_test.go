package store

// SetMaxRead makes reads of tasks small, since a test should not store what is too much for real.
func (c *ClickHouse) SetMaxRead(bytes int) { c.maxRead = bytes }
