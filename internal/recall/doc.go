// Package recall answers a question with the few items that matter, and says why each is there.
//
// It collects candidates from several searches (vectors, words, tags, entities, rules, one hop of relations), checks each
// against the record, ranks them by a preset whose every part is reported, and shortens the answer to a budget of
// tokens. An index may be stale or away; an answer may not: what is not active in the record now is never shown, and
// when a search is missing the answer says so and is made from the others.
//
// It writes nothing but the trace event that a recall was served, and never follows what a memory says: the text of an
// item is data.
package recall
