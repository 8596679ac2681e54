package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLessonsOfRealRuns imports recorded runs and asks what an agent with a like task would ask: it is told what the
// recorded failures teach, and never that a server was away for a while.
func TestLessonsOfRealRuns(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HINDSIGHT_TEST_DATA")
	if dir == "" {
		t.Skip("HINDSIGHT_TEST_DATA is not set: lessons of recorded runs are not tested")
	}
	in := newInstallation(t)
	in.start()
	in.run("import", "--namespace", "air", "--wait", filepath.Join(dir, "traces", "tau_airline_gpt4o.jsonl.gz"))
	in.run("consolidate", "merge") // it runs every minute by itself
	in.run("import", "--namespace", "shop", "--wait", filepath.Join(dir, "traces", "tau_retail_503faults.jsonl.gz"))

	type answer struct {
		Items []struct {
			Lesson string             `json:"lesson"`
			Text   string             `json:"text"`
			Parts  map[string]float64 `json:"parts"`
		} `json:"items"`
		Known bool `json:"known"`
	}
	payment := func(a answer) bool {
		for _, item := range a.Items {
			if strings.Contains(item.Lesson, "book_reservation") && strings.Contains(item.Lesson, "add up") {
				return true
			}
		}
		return false
	}
	for _, question := range []string{
		"Book a flight for the customer and split the payment over two gift cards and a credit card", "用两张礼品卡和信用卡支付机票",
	} {
		a := parse[answer](t, in.run("recall", "--namespace", "air", "--task-type", "tau-bench/airline", "--json", question))
		if !payment(a) {
			t.Errorf("asked %q, the answer does not hold what the failures teach about payment: %+v", question, a.Items)
		}
	}
	call := `{"user_id":"u_1","origin":"JFK","destination":"SEA","flight_type":"one_way","cabin":"economy","insurance":"no","total_baggages":0,"nonfree_baggages":0,` +
		`"flights":[{"flight_number":"HAT1","date":"2024-05-20"}],"passengers":[{"first_name":"A","last_name":"B","dob":"1990-01-01"}],` +
		`"payment_methods":[{"payment_id":"gift_card_1","amount":10},{"payment_id":"credit_card_2","amount":20}]}`
	if a := parse[answer](t, in.run("check", "--namespace", "air", "--tool", "book_reservation", "--params", call, "--json")); !a.Known || !payment(a) {
		t.Errorf("before a booking nothing is said about payment: %+v", a.Items)
	}
	if a := parse[answer](t, in.run("check", "--namespace", "air", "--tool", "no_such_tool", "--json")); a.Known {
		t.Errorf("something is known about a tool that nobody ever called: %+v", a.Items)
	}

	if n := in.sql("SELECT count() FROM v_snapshots WHERE namespace = 'shop'"); n == "0" {
		t.Error("nothing was learnt from the runs with outages")
	}
	outages := "(lesson ILIKE '%503%' OR lesson ILIKE '%service unavailable%' OR error_message ILIKE '%503%' OR root_cause_class = 'environment')"
	if n := in.sql("SELECT count() FROM v_snapshots WHERE status = 'active' AND " + outages); n != "0" {
		t.Errorf("%s lessons are about outages:\n%s", n, in.sql("SELECT lesson FROM v_snapshots WHERE status = 'active' AND "+outages+" LIMIT 5"))
	}
	if n := in.sql("SELECT sum(dropped['environment']) FROM reflections WHERE namespace = 'shop'"); n == "0" {
		t.Error("outages are not counted among what was dropped")
	}
}
