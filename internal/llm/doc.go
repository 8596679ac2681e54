// Package llm asks a language model a question and takes nothing but valid JSON for an answer.
//
// [Client] speaks to any server with OpenAI's protocol. It finds the object in what the model said (fences, prose,
// thoughts and trailing commas around it are forgiven), checks it against the question's schema, and asks once more with
// the complaint. What comes back is valid, or the error is [ErrGarbage]; a server that is away, slow or overloaded is
// [ErrUnavailable], after back-off within a bound of time. It never repairs a meaning, and logs neither questions,
// answers nor keys.
package llm
