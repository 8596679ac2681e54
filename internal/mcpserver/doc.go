// Package mcpserver lets agents ask and write the memory by the Model Context Protocol, over streamable HTTP and stdio.
//
// It is a thin reader: it turns a call into one question to [Recaller] or one trace event to [Writer], and the answer
// into a result that a model can read. It holds no memory, ranks nothing and decides nothing.
//
// What it guarantees: the namespace comes from the token and never from an argument. Initialize and the lists need none
// of the ports, so that a client sees its tools while the engines still start; a call that a port cannot serve is an
// error result that says what to do. Both halves of a result carry the same answer. The text of an item is data: it
// stands between marks that are new for each answer, with its source, date and trust, and never appears in
// instructions or descriptions. A result stays under [MaxResultTokens]. A panic costs one call and not the process.
//
// What an agent sends is read tolerantly: models leave out, null, quote and invent arguments, and clients add their
// own. An argument that nobody declared is dropped; null, "", [] and 0 mean that it is absent.
package mcpserver
