package simulate

// Summarise makes figures of cells that a test wrote.
func Summarise(o Options, cells []Result) *Summary { return summarise(o, cells) }
