package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const height = 8

// folder reads tiles of the published log as Go's client reads those of the checksum database.
type folder string

func (f folder) Height() int { return height }

func (f folder) SaveTiles([]tlog.Tile, [][]byte) {}

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range tiles {
		data, err := f.read(fmt.Sprint("tile/", strings.TrimPrefix(tile.Path(), "tile/8/")))
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

func (f folder) read(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), path))
}

// published proves leaves and older sizes of a folder's log from its tiles alone, and holds the entries against them.
func published(verifier note.Verifier, from folder) error {
	text, err := from.read("checkpoint")
	if err != nil {
		return err
	}
	size, root, err := open(verifier, string(text))
	if err != nil {
		return err
	}
	hashes := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, from)
	if found, err := tlog.TreeHash(size, hashes); err != nil || found != root {
		return fmt.Errorf("another root: %v", err)
	}
	for index := int64(0); index < size; index += 1 + size/300 {
		leaf, err := from.leaf(index, size)
		if err != nil {
			return err
		}
		path, err := tlog.ProveRecord(size, index, hashes)
		if err != nil {
			return err
		}
		if err := tlog.CheckRecord(path, size, root, index, leaf); err != nil {
			return err
		}
		old, err := tlog.TreeHash(index+1, hashes)
		if err != nil {
			return err
		}
		grown, err := tlog.ProveTree(size, index+1, hashes)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(grown, size, root, index+1, old); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) leaf(index, size int64) (tlog.Hash, error) {
	tile := tlog.Tile{H: height, L: 0, N: index >> height, W: int(min(size-index>>height<<height, 1<<height))}
	path := strings.Replace(tile.Path(), "tile/8/0/", "tile/entries/", 1)
	data, err := f.read(path)
	for at := index >> height << height; err == nil; at++ {
		if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
			return tlog.Hash{}, errors.New("entries are cut off")
		}
		end := 2 + int(binary.BigEndian.Uint16(data))
		if at == index {
			return tlog.RecordHash(data[2:end]), nil
		}
		data = data[end:]
	}
	return tlog.Hash{}, err
}

func min(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}
