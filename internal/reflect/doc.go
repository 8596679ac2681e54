// Package reflect turns finished tasks into decision snapshots and memories, and what agents write into the same.
//
// [Reflector] reads one task, finds the decisions that matter, and lets two critics word the lessons: the evidence
// critic, which needs no model and says only what the trace shows, and a model, whose every word is checked against the
// evidence and which the evidence critic stands in for whenever it is away or talks nonsense. [Keeper] stores what
// agents and people write themselves.
//
// Both guarantee that every item has evidence and an id that does not depend on anyone's words, that doing anything twice
// changes nothing, that what is forgotten stays forgotten, and that no instruction, link, payment target or secret out
// of a tool's output enters an item. Neither talks to a broker: the wiring hands them requests and acts on their errors.
package reflect
