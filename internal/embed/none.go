package embed

import "context"

// None is the absence of a model: recall is lexical only. Everything that asks
// it for a vector gets [ErrNone].
type None struct{}

var _ Model = None{}

// Name implements [Model].
func (None) Name() string { return "none" }

// Dimension implements [Model].
func (None) Dimension(context.Context) (int, error) { return 0, ErrNone }

// Embed implements [Model].
func (None) Embed(context.Context, []string) ([][]float32, error) { return nil, ErrNone }

// Close implements [Model].
func (None) Close() error { return nil }
