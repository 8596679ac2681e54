// Package memory is the domain of Hindsight: tasks, steps and what is concluded from them, and the ports that
// several use cases share.
//
// Its functions are pure: the same events give the same task, whatever their order of arrival, and nothing here
// reads a clock, does I/O or knows a driver. It imports nothing of ours but events.
package memory
