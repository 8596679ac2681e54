package simulate

// Summarise makes figures of cells that a test wrote.
func Summarise(o Options, cells []Result) *Summary { return summarise(o, cells) }

// Cells are the results of which the figures were made.
func (s *Summary) Cells() []Result { return s.cells }
