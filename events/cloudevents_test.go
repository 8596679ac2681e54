package events_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
)

const (
	nativeBody = `{"id":"e1","namespace":"acme.web","agent_id":"a","session_id":"s","user_id":"u","task_id":"t",` +
		`"goal_id":"g","seq":7,"time":"2026-01-31T09:30:00.125Z","kind":"step_finished",` +
		`"data":{"tool":"get","status":"success"}}`
	stepData = `{"tool":"get","status":"success"}`
)

// structured is a CloudEvent in the JSON format; more is added to its fields and wins over them.
func structured(more string) string {
	return `{"specversion":"1.0","id":"1","source":"/agents/a","type":"dev.hindsight.step_finished",` +
		`"time":"2026-01-31T10:30:00.125+01:00","namespace":"acme.web","agentid":"a","sessionid":"s","taskid":"t",` +
		`"goalid":"g","userid":"u","seq":7,"data":` + stepData + more + `}`
}

// binary is the same CloudEvent in headers; the pairs are added, and an empty value removes one.
func binary(pairs ...string) map[string][]string {
	h := map[string][]string{
		"ce-specversion": {"1.0"}, "CE-ID": {"1"}, "Ce-Source": {"/agents/a"}, "ce-type": {"step_finished"},
		"ce-time": {"2026-01-31T09:30:00.125Z"}, "ce-namespace": {"acme.web"}, "Ce-AgentId": {"a"},
		"ce-sessionid": {"s"}, "ce-taskid": {"t"}, "ce-goalid": {"g"}, "ce-userid": {"u"}, "ce-seq": {"7"},
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			delete(h, pairs[i])
			continue
		}
		h[pairs[i]] = []string{pairs[i+1]}
	}
	return h
}

func contentType(value string) map[string][]string {
	return map[string][]string{"CONTENT-type": {value}}
}

func TestDecodeReadsOneEventInEveryForm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
	}{
		"structured":                          {contentType("application/cloudevents+json"), structured("")},
		"structured, with a charset":          {contentType("Application/CloudEvents+JSON; charset=utf-8"), structured("")},
		"structured, short content type":      {contentType("application/cloudevents"), structured("")},
		"structured, no header":               {nil, structured("")},
		"structured, seq as text":             {nil, structured(`,"seq":"7"`)},
		"structured, null is absent":          {nil, structured(`,"subject":null,"data_base64":null`)},
		"structured, bytes as base64":         {nil, structured(`,"data":null,"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(stepData)) + `"`)},
		"structured wins over ce- headers":    {map[string][]string{"content-type": {"application/cloudevents+json"}, "ce-id": {"2"}}, structured("")},
		"binary":                              {binary(), stepData},
		"binary, prefixed type":               {binary("ce-type", "dev.hindsight.step_finished"), stepData},
		"binary, other headers are not ours":  {binary("traceparent", "00-1"), stepData},
		"binary, quoted":                      {binary("ce-namespace", `"acme\.web"`), stepData},
		"binary, percent-encoded":             {binary("ce-namespace", "acme%2Eweb"), stepData},
		"binary, one header in two cases":     {binary("CE-type", "step_finished"), stepData},
		"binary, white space round the value": {binary("ce-seq", " 7 "), " " + stepData + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := events.Decode(c.header, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if want := events.CloudEventID("/agents/a", "1"); e.ID != want {
				t.Errorf("id = %q, want %q", e.ID, want)
			}
			if string(e.Extra["ce_source"]) != `"/agents/a"` || string(e.Extra["ce_id"]) != `"1"` || len(e.Extra) != 2 {
				t.Errorf("extra = %s, want exactly the source and id", e.Extra)
			}
			e.ID, e.Extra = "e1", nil
			raw, err := e.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if string(raw) != nativeBody {
				t.Errorf("event = %s\nwant    %s", raw, nativeBody)
			}
		})
	}
}

func TestDecodeReadsNativeEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
	}{
		"no header":                     {nil, nativeBody},
		"JSON":                          {contentType("application/json"), nativeBody},
		"headers of the broker":         {map[string][]string{"Nats-Msg-Id": {"acme.web/e1"}, "Nats-Expected-Stream": {"a", "b"}}, nativeBody},
		"ce- header that means nothing": {map[string][]string{"ce-traceparent": {"x"}}, nativeBody},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := events.Decode(c.header, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := e.MarshalJSON()
			if err != nil || string(raw) != nativeBody {
				t.Errorf("event = %s, %v\nwant    %s", raw, err, nativeBody)
			}
		})
	}
	t.Run("a native event may have a specversion", func(t *testing.T) {
		t.Parallel()
		e, err := events.Decode(nil, []byte(`{"id":"e1","specversion":"1.0","kind":"message"}`))
		if err != nil || e.ID != "e1" || string(e.Extra["specversion"]) != `"1.0"` {
			t.Errorf("event = %+v, %v", e, err)
		}
	})
}

func TestDecodeKeepsOtherAttributes(t *testing.T) {
	t.Parallel()
	inJSON, err := events.Decode(nil, []byte(structured(`,"subject":"日本","flag":true,"count":3,"datacontenttype":"application/json"`)))
	if err != nil {
		t.Fatal(err)
	}
	inHeaders, err := events.Decode(binary("ce-subject", "%E6%97%A5%E6%9C%AC", "ce-flag", "true", "ce-count", "3",
		"ce-datacontenttype", "application/json"), []byte(stepData))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ce_subject": `"日本"`, "ce_flag": `"true"`, "ce_count": `"3"`, "ce_datacontenttype": `"application/json"`,
	} {
		if string(inJSON.Extra[name]) != want || string(inHeaders.Extra[name]) != want {
			t.Errorf("%s = %s structured and %s binary, want %s", name, inJSON.Extra[name], inHeaders.Extra[name], want)
		}
	}
	if e, err := events.Decode(binary("ce-subject", "100%"), nil); err != nil || string(e.Extra["ce_subject"]) != `"100%"` {
		t.Errorf("not percent-encoded: %s, %v", e.Extra["ce_subject"], err)
	}
}

func TestDecodeAcceptsEventsWithoutData(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
	}{
		"binary, empty body":       {binary("ce-datacontenttype", "text/plain"), ""},
		"binary, null":             {binary(), "null"},
		"structured, null":         {nil, structured(`,"data":null`)},
		"structured, empty base64": {nil, structured(`,"data":null,"data_base64":""`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := events.Decode(c.header, []byte(c.body))
			if err != nil || e.Data != nil {
				t.Errorf("data = %q, %v; want none", e.Data, err)
			}
		})
	}
}

func TestDecodeRefusesMalformedEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
		say    string
	}{
		"empty":                        {nil, "", "malformed event"},
		"null":                         {nil, "null", "null"},
		"a list":                       {nil, "[]", "array"},
		"trailing bytes":               {nil, nativeBody + "{}", "after top-level value"},
		"id is a number":               {nil, `{"id":1}`, "field id"},
		"seq is text":                  {nil, `{"seq":"1"}`, "field seq"},
		"bad time":                     {nil, `{"time":"yesterday"}`, "field time"},
		"batch":                        {contentType("application/cloudevents-batch+json"), "[]", "batch"},
		"another format":               {contentType("application/cloudevents+avro"), "x", "avro"},
		"structured but native":        {contentType("application/cloudevents+json"), nativeBody, "specversion is missing"},
		"structured, not JSON":         {contentType("application/cloudevents+json"), "<x/>", "CloudEvent"},
		"structured, null":             {contentType("application/cloudevents+json"), "null", "specversion is missing"},
		"structured, old version":      {nil, structured(`,"specversion":"0.3"`), "0.3"},
		"structured, version 10":       {nil, structured(`,"specversion":"10"`), `"10"`},
		"structured, no id":            {nil, structured(`,"id":null`), "id is missing"},
		"structured, no source":        {nil, structured(`,"source":""`), "source is missing"},
		"structured, no type":          {nil, structured(`,"type":null`), "type is missing"},
		"structured, two data":         {nil, structured(`,"data_base64":"e30="`), "both"},
		"structured, bad base64":       {nil, structured(`,"data":null,"data_base64":"!"`), "data_base64"},
		"structured, base64 no text":   {nil, structured(`,"data":null,"data_base64":1`), "data_base64"},
		"structured, base64 no JSON":   {nil, structured(`,"data":null,"data_base64":"eA=="`), "not JSON"},
		"structured, attribute object": {nil, structured(`,"taskid":{}`), "taskid"},
		"structured, attribute list":   {nil, structured(`,"x":[]`), "attribute x"},
		"structured, bad seq":          {nil, structured(`,"seq":1.5`), "seq"},
		"structured, bad time":         {nil, structured(`,"time":"x"`), "time"},
		"structured, data is XML":      {nil, structured(`,"data":"<x/>","datacontenttype":"application/xml"`), "application/xml"},
		"binary, no specversion":       {binary("ce-specversion", ""), stepData, "specversion is missing"},
		"binary, no id":                {binary("CE-ID", ""), stepData, "id is missing"},
		"binary, no source":            {binary("Ce-Source", ""), stepData, "source is missing"},
		"binary, no type":              {binary("ce-type", ""), stepData, "type is missing"},
		"binary, bad seq":              {binary("ce-seq", "x"), stepData, "seq"},
		"binary, body not JSON":        {binary(), "{", "not JSON"},
		"binary, text in ce- header":   {binary("ce-datacontenttype", "text/plain"), stepData, "text/plain"},
		"binary, text in content type": {binary("Content-Type", "text/plain; charset=utf-8"), stepData, "text/plain"},
		"binary, nonsense type":        {binary("Content-Type", "///"), stepData, "///"},
		"one header, two values":       {binary("CE-TYPE", "message"), stepData, "two values"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := events.Decode(c.header, []byte(c.body))
			if !errors.Is(err, events.ErrMalformed) {
				t.Fatalf("Decode = %+v, %v; want ErrMalformed", e, err)
			}
			if !strings.Contains(err.Error(), c.say) {
				t.Errorf("error %q does not say %q", err, c.say)
			}
			if e.ID != "" || e.Data != nil || e.Extra != nil {
				t.Errorf("an event came with the error: %+v", e)
			}
		})
	}
}

func TestCloudEventIDTellsSourcesApart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"abc", ""}, {"1", "1:a"}, {"a", "b/c"}, {"a/b", "c"}} {
		id := events.CloudEventID(pair[0], pair[1])
		if before, clash := seen[id]; clash {
			t.Errorf("%q and %v have one id", before, pair)
		}
		seen[id] = strings.Join(pair[:], " + ")
		if len(id) > events.MaxIDBytes {
			t.Errorf("id %q is too long", id)
		}
	}
	// The mapping is part of the contract: a different hash would store every redelivered CloudEvent twice.
	if got, want := events.CloudEventID("/agents/a", "1"), "ce-79b9b1895932ba6e57a8277efe107dd0"; got != want {
		t.Errorf("CloudEventID = %q, want %q", got, want)
	}
}

func TestDecodeDoesNotKeepItsArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header map[string][]string
		body   []byte
	}{
		"native": {nil, []byte(nativeBody)}, "structured": {nil, []byte(structured(""))}, "binary": {binary(), []byte(stepData)},
	} {
		e, err := events.Decode(c.header, c.body)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.body {
			c.body[i] = 'x'
		}
		if string(e.Data) != stepData {
			t.Errorf("%s: data changed with the body: %s", name, e.Data)
		}
	}
}
