// Checks proofs of the log of seals with the code of Go's checksum database: one line in, one line out.
//
//	inclusion VKEY BASE64(leaf) BASE64(tlog-proof)
//	consistency VKEY BASE64(old checkpoint) BASE64(proof)
//	tiles VKEY BASE64(folder)
package main

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if err := check(strings.Fields(lines.Text())); err != nil {
			fmt.Println("no:", err)
		} else {
			fmt.Println("yes")
		}
	}
}

func check(args []string) error {
	verifier, err := note.NewVerifier(args[1])
	if err != nil {
		return err
	}
	if args[0] == "tiles" {
		return published(verifier, folder(decode(args[2])))
	}
	first, second := decode(args[2]), decode(args[3])
	if args[0] == "inclusion" {
		return inclusion(verifier, first, second)
	}
	return consistency(verifier, first, second)
}

func inclusion(verifier note.Verifier, leaf, proof string) error {
	head, checkpoint, _ := strings.Cut(proof, "\n\n")
	lines := strings.Split(head, "\n")
	if len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return errors.New("no tlog-proof")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
	if err != nil {
		return err
	}
	size, root, err := open(verifier, checkpoint)
	if err != nil {
		return err
	}
	path, err := hashes(lines[2:])
	if err != nil {
		return err
	}
	return tlog.CheckRecord(path, size, root, index, tlog.RecordHash([]byte(leaf)))
}

func consistency(verifier note.Verifier, old, proof string) error {
	oldSize, oldRoot, err := open(verifier, old)
	if err != nil {
		return err
	}
	head, checkpoint, _ := strings.Cut(proof, "\n\n")
	lines := strings.Split(head, "\n")
	if lines[0] != fmt.Sprintf("old %d", oldSize) {
		return errors.New("another size")
	}
	size, root, err := open(verifier, checkpoint)
	if err != nil {
		return err
	}
	path, err := hashes(lines[1:])
	if err != nil {
		return err
	}
	return tlog.CheckTree(path, size, root, oldSize, oldRoot)
}

func open(verifier note.Verifier, text string) (int64, tlog.Hash, error) {
	opened, err := note.Open([]byte(text), note.VerifierList(verifier))
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return size, root, err
}

func hashes(lines []string) ([]tlog.Hash, error) {
	var found []tlog.Hash
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, err
		}
		found = append(found, hash)
	}
	return found, nil
}

func decode(text string) string {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}
