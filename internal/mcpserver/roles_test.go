package mcpserver_test

// roleVariable makes the test program another process of a test.
const roleVariable = "HINDSIGHT_TEST_ROLE"

func playRole(string) int { return 2 }
