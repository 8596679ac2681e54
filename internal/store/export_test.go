package store

// SetMaxRead makes reads of tasks small, since a test should not store what is too much for real.
func (c *ClickHouse) SetMaxRead(bytes int) { c.maxRead = bytes }

// IndexFromTheFirst makes the HNSW index before there is any entry, asks it always, and indexes each part at once.
func (v *Vectors) IndexFromTheFirst() { v.indexFrom, v.indexParts = 0, true }

// SetIndexFrom says from how many entries on the HNSW index is made and asked.
func (v *Vectors) SetIndexFrom(entries uint64) { v.indexFrom = entries }

// Table is the table of the model in use.
func (v *Vectors) Table() string { return v.table }

// WordsOf cuts a text into words.
func WordsOf(text string) []string { return wordsOf(text) }

// Identifiers are the codes and names of a text.
func Identifiers(text string) []string { return identifiers(text) }

// Holds says whether a text has an identifier as a whole.
func Holds(text, identifier string) bool { return tokensOf(text).holds(identifier) }
