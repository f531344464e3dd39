// A plugin with one tool, `bash_plugin`: runs a shell command. `go build bash_plugin.go` builds it, without modules.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"
)

type request struct {
	Type   string `json:"type"`
	Params struct {
		Command string `json:"command"`
		Timeout int    `json:"timeout"`
	} `json:"params"`
}

type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type answer struct {
	Content []block `json:"content"`
	Error   bool    `json:"error"`
}

var definition = map[string]any{
	"name":        "bash_plugin",
	"description": "Run a shell command and return what it prints.",
	"parameters": map[string]any{
		"type": "object",
		"properties": map[string]any{
			"command": map[string]any{"type": "string", "description": "The command"},
			"timeout": map[string]any{"type": "integer", "description": "Seconds that it may take", "default": 30},
		},
		"required": []string{"command"},
	},
}

func run(command string, seconds int) answer {
	if seconds <= 0 {
		seconds = 30
	}
	limit, stop := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer stop()
	output, err := exec.CommandContext(limit, "sh", "-c", command).CombinedOutput()
	text := string(output)
	if limit.Err() != nil {
		text += fmt.Sprintf("\nError: it took more than %d s", seconds)
	} else if err != nil {
		text += fmt.Sprintf("\nError: %v", err)
	}
	return answer{Content: []block{{Type: "text", Text: text}}, Error: err != nil}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64*1024*1024)
	write := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, "not a request:", err)
			continue
		}
		switch asked.Type {
		case "describe":
			_ = write.Encode(definition)
		case "call":
			_ = write.Encode(run(asked.Params.Command, asked.Params.Timeout))
		}
	}
}
