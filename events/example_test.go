package events_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// An agent publishes what it does. Without NATS, as here, nothing blocks and nothing fails; what could not be delivered
// is told.
func ExampleNewPublisher() {
	publisher, err := events.NewPublisher("nats://127.0.0.1:1", events.PublisherOptions{
		OnDrop: func(d events.Drop) { fmt.Println("dropped:", d.Event.ID, d.Reason) },
	})
	if err != nil {
		fmt.Println("no traces will be published:", err) // The agent goes on; a nil publisher is harmless.
	}

	data, err := events.EncodeData(events.StepFinished{
		Tool: "get_order", Parameters: []byte(`{"order":"A-17"}`), Status: events.StatusFailure,
		ErrorType: "NotFound", ErrorMessage: "there is no order A-17", ExecutionTimeMS: 42,
	})
	if err != nil {
		fmt.Println("a step is not published:", err)
	}
	err = publisher.Publish(context.Background(), events.Event{
		ID: "step-1", Namespace: "acme.support", AgentID: "agent-1", SessionID: "session-1", TaskID: "task-1",
		Kind: events.KindStepFinished, Data: data,
	})
	fmt.Println("accepted:", err == nil)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := publisher.Close(ctx); err != nil {
		fmt.Println("some events were not delivered")
	}
	// Output:
	// accepted: true
	// dropped: step-1 closed
	// some events were not delivered
}

// A CloudEvent in binary mode becomes a trace event.
func ExampleDecode() {
	e, err := events.Decode(map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"17"}, "ce-source": {"/agents/support"}, "ce-type": {"dev.hindsight.message"},
		"ce-time": {"2026-01-31T09:30:00Z"}, "ce-namespace": {"acme.support"}, "ce-agentid": {"agent-1"},
		"ce-sessionid": {"session-1"}, "ce-taskid": {"task-1"}, "Content-Type": {"application/json"},
	}, []byte(`{"role":"user","content":"Where is my order?"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := events.DecodeData[events.Message](e)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Namespace, e.Kind, m.Role, m.Content)
	fmt.Println(events.Subject(e.Namespace, e.Kind))
	// Output:
	// acme.support message user Where is my order?
	// hindsight.v1.trace.acme.support.message
}

// Prepare masks secrets before anything leaves the process.
func ExamplePrepare() {
	_, raw, err := events.Prepare(events.Event{
		ID: "step-1", Namespace: "acme", AgentID: "agent-1", SessionID: "session-1", TaskID: "task-1",
		Time: time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC), Kind: events.KindStepFinished,
		Data: []byte(`{"tool":"login","parameters":{"user":"ada","password":"correct horse"},"status":"success"}`),
	}, time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(raw))
	// Output:
	// {"id":"step-1","namespace":"acme","agent_id":"agent-1","session_id":"session-1","task_id":"task-1","time":"2026-01-31T09:30:00.000Z","kind":"step_finished","data":{"tool":"login","parameters":{"user":"ada","password":"[masked:password]"},"status":"success"}}
}
