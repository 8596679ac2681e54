// Package embed turns texts into vectors of length 1.
//
// [Embedder] is what callers hold: it cleans texts, remembers vectors, embeds
// equal texts once, lets an interactive question overtake background work, and
// bounds what may wait. Below it is a [Model]: [Local] (multilingual-e5-small
// in this process, the default), [Endpoint] (any server that speaks OpenAI's
// protocol) or [None] (recall is lexical only).
//
// What it guarantees: every vector that is handed out has the model's
// dimension, length 1 and no NaN; vectors come in the order of the texts; an
// error is never a vector of zeros. What can be tried again (a model that is
// not loaded yet, an endpoint that is away) wraps [memory.ErrUnavailable].
//
// What it never does: it sends no text anywhere unless an endpoint was
// configured, logs neither texts nor keys, and stores nothing on disk.
// Vectors of different models cannot be compared: [Embedder.Identity] names
// the model, and [CheckStored] refuses another one than the stored.
package embed
