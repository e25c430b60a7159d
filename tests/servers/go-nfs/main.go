// A directory served by the library go-nfs.
//
//	private-go-nfs [-exports ANSWER] ADDRESS DIRECTORY
//
// The library answers MOUNT's EXPORT with PROG_MISMATCH and without the two versions that belong there.
// With -exports a front of this program answers EXPORT: "root" lists the path "/", "unavailable" says that
// there is no such procedure. All other calls reach the library as they are.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/willscott/go-nfs"
	"github.com/willscott/go-nfs/helpers"
)

const (
	// Files whose handles the library remembers; those of others are stale.
	handles      = 1024
	mountProgram = 100005
	exportCall   = 5
	lastFragment = 1 << 31
	// A record that is longer is an error of the client.
	longestRecord = 64 << 20
)

// Replies to EXPORT behind their XID (RFC 5531 §9, RFC 1813 §5.2.5).
var answers = map[string][]uint32{
	"root": {
		1, 0, 0, 0, 0, // a reply, accepted, no verifier, success
		1, 1, 0x2f000000, // an export, its path
		0, // no groups
		0, // no further export
	},
	"unavailable": {1, 0, 0, 0, 3},
}

// directory is a file system that can change attributes, which osfs alone cannot.
type directory struct {
	billy.Filesystem
}

func (d directory) path(name string) string { return filepath.Join(d.Root(), name) }

func (d directory) Chmod(name string, mode os.FileMode) error {
	return os.Chmod(d.path(name), mode)
}

func (d directory) Chown(name string, uid, gid int) error {
	return os.Chown(d.path(name), uid, gid)
}

func (d directory) Lchown(name string, uid, gid int) error {
	return os.Lchown(d.path(name), uid, gid)
}

func (d directory) Chtimes(name string, access, modified time.Time) error {
	return os.Chtimes(d.path(name), access, modified)
}

func main() {
	exports := flag.String("exports", "", "the answer to MOUNT's EXPORT: root or unavailable")
	flag.Parse()
	answer, known := answers[*exports]
	if flag.NArg() != 2 || (*exports != "" && !known) {
		log.Fatal("usage: private-go-nfs [-exports root|unavailable] ADDRESS DIRECTORY")
	}
	listener, err := net.Listen("tcp", flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	if known {
		listener = front(listener, answer)
	}
	files := helpers.NewNullAuthHandler(directory{osfs.New(flag.Arg(1))})
	log.Fatal(nfs.Serve(listener, helpers.NewCachingHandler(files, handles)))
}

// front accepts connections, and gives the library one of its own for each.
func front(outer net.Listener, answer []uint32) net.Listener {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			client, err := outer.Accept()
			if err != nil {
				log.Fatal(err)
			}
			library, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				log.Fatal(err)
			}
			go func() {
				_, _ = io.Copy(client, library)
				client.Close()
			}()
			go func() {
				if err := passCalls(client, library, answer); err != nil && err != io.EOF {
					log.Print(err)
				}
				library.Close()
			}()
		}
	}()
	return inner
}

// passCalls hands each call to the library, but for EXPORT. MOUNT's client has one call outstanding,
// so that no reply of the library is under way while this one is written.
func passCalls(client, library net.Conn, answer []uint32) error {
	for {
		var mark [4]byte
		if _, err := io.ReadFull(client, mark[:]); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(mark[:]) &^ lastFragment
		if length > longestRecord {
			return fmt.Errorf("a record of %d bytes", length)
		}
		call := make([]byte, length)
		if _, err := io.ReadFull(client, call); err != nil {
			return err
		}
		if asksForExports(call) {
			if _, err := client.Write(record(call[:4], answer)); err != nil {
				return err
			}
			continue
		}
		if _, err := library.Write(append(mark[:], call...)); err != nil {
			return err
		}
	}
}

func asksForExports(call []byte) bool {
	word := func(index int) uint32 { return binary.BigEndian.Uint32(call[4*index:]) }
	return len(call) >= 24 && word(1) == 0 && word(3) == mountProgram && word(5) == exportCall
}

func record(xid []byte, words []uint32) []byte {
	record := binary.BigEndian.AppendUint32(nil, lastFragment|uint32(4+4*len(words)))
	record = append(record, xid...)
	for _, word := range words {
		record = binary.BigEndian.AppendUint32(record, word)
	}
	return record
}
