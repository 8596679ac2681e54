package embed

import "context"

// Raw embeds texts without subtracting a mean.
func (l *Local) Raw(ctx context.Context, texts []string) ([][]float32, error) {
	return l.ask(ctx, texts, true)
}

// OtherLanguage is the key of the common mean.
const OtherLanguage = otherLanguage

// Centred subtracts the mean of text's language from its raw vector.
func (l *Local) Centred(v []float32, text string) ([]float32, error) {
	c := append([]float32(nil), v...)
	l.centre(c, text)
	return c, normalise(c)
}
