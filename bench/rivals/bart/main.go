// A rival: bart.Fast of github.com/gaissmai/bart, behind the line protocol of ../README.md.
//
// Keys and routes are read from mapped files of the parent process, and answers are written into
// one. Fast is the faster of the library's two tables with values. It takes one netip.Addr per
// call; the conversion of the key is part of the reported time, as a forwarder has to do it too.
// Its hop is a uint32; 0 is none.
//
// Every pass runs in goroutines that are locked to threads, each bound to one CPU; its time is
// the CPU time of that thread. The garbage collector is off during passes: there is no garbage.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/gaissmai/bart"
)

type rival struct {
	family int
	table  bart.Fast[uint32]
	keys   []byte
	bytes  uint64
}

// Always false, which the compiler cannot know: makes each key of a chain depend on the last answer.
var neverTrue = len(os.Args) > 1 << 20

func main() {
	version := "bart"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if strings.HasSuffix(module.Path, "/bart") {
				version += " " + module.Version
			}
		}
	}
	fmt.Printf("ok %s, %s\n", version, runtime.Version())
	var r rival
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		answer, err := r.answer(words)
		if err != nil {
			fmt.Printf("error %v\n", err)
		} else {
			fmt.Printf("ok %s\n", answer)
		}
	}
}

func (r *rival) answer(words []string) (string, error) {
	switch {
	case words[0] == "table" && len(words) == 3 && r.family == 0:
		return r.fill(words[1], words[2])
	case r.family == 0:
		return "", fmt.Errorf("a table comes first")
	case words[0] == "keys" && len(words) == 2:
		if r.keys != nil {
			_ = syscall.Munmap(r.keys)
			r.keys = nil
		}
		keys, err := mapped(words[1], false)
		r.keys = keys
		return strconv.Itoa(len(keys)), err
	case words[0] == "pass" && (len(words) == 4 || len(words) == 5):
		return r.pass(words[1:])
	case words[0] == "latency" && len(words) == 2:
		return r.latency(words[1])
	case words[0] == "change" && len(words) == 2:
		count, seconds, err := r.change(words[1])
		return fmt.Sprintf("%d %.6f", count, seconds), err
	}
	return "", fmt.Errorf("no such command: %s", strings.Join(words, " "))
}

// mapped maps a file.
func mapped(path string, write bool) ([]byte, error) {
	flags, access := os.O_RDONLY, syscall.PROT_READ
	if write {
		flags, access = os.O_RDWR, syscall.PROT_READ|syscall.PROT_WRITE
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return syscall.Mmap(int(file.Fd()), 0, int(about.Size()), access,
		syscall.MAP_SHARED|syscall.MAP_POPULATE)
}

// clock returns the CPU time of the calling thread.
func clock() float64 {
	var usage syscall.Timespec
	const threadCPU = 3
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&usage)), 0)
	return float64(usage.Sec) + float64(usage.Nsec)/1e9
}

// pin binds the calling thread to one CPU; if that is forbidden, it stays unbound.
func pin(cpu int) {
	var set [16]uint64
	set[cpu/64] = 1 << (cpu % 64)
	syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(set),
		uintptr(unsafe.Pointer(&set)))
}

func (r *rival) fill(family, path string) (string, error) {
	switch family {
	case "4":
		r.family = 4
	case "6":
		r.family = 6
	default:
		return "", fmt.Errorf("table: 4 or 6, and a file")
	}
	before := live()
	count, seconds, err := r.change(path)
	r.bytes = live() - before
	return fmt.Sprintf("%d %.6f %d 0", count, seconds, r.bytes), err
}

// live returns the bytes that are in use.
func live() uint64 {
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

// change applies the changes of a file; hop 0 withdraws a route.
func (r *rival) change(path string) (int, float64, error) {
	list, err := mapped(path, false)
	if err != nil {
		return 0, 0, err
	}
	defer syscall.Munmap(list)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	size := 12
	if r.family == 6 {
		size = 24
	}
	start := clock()
	for at := 0; at < len(list); at += size {
		item := list[at : at+size]
		var addr netip.Addr
		if r.family == 4 {
			addr = v4(binary.NativeEndian.Uint32(item))
		} else {
			addr = netip.AddrFrom16([16]byte(item[:16]))
		}
		length := binary.NativeEndian.Uint32(item[size-8:])
		hop := binary.NativeEndian.Uint32(item[size-4:])
		prefix := netip.PrefixFrom(addr, int(length))
		if hop == 0 {
			r.table.Delete(prefix)
		} else {
			r.table.Insert(prefix, hop)
		}
	}
	return len(list) / size, clock() - start, nil
}

func v4(key uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(key >> 24), byte(key >> 16), byte(key >> 8), byte(key)})
}

// look looks keys[first:last] up, and returns the last answer. Answers go to out, if it is not
// nil. If chained, zero bits derived from each answer are part of the next key.
func (r *rival) look(first, last int, chained bool, out []uint32) uint32 {
	var zero, hop uint32
	if chained && neverTrue {
		zero = 1
	}
	if r.family == 4 {
		keys := unsafe.Slice((*uint32)(unsafe.Pointer(&r.keys[0])), len(r.keys)/4)
		for i := first; i < last; i++ {
			hop, _ = r.table.Lookup(v4(keys[i] ^ hop&zero))
			if out != nil {
				out[i] = hop
			}
		}
		return hop
	}
	for i := first; i < last; i++ {
		key := [16]byte(r.keys[i*16 : i*16+16])
		key[15] ^= byte(hop & zero)
		hop, _ = r.table.Lookup(netip.AddrFrom16(key))
		if out != nil {
			out[i] = hop
		}
	}
	return hop
}

// count returns how many keys there are.
func (r *rival) count() int {
	if r.family == 4 {
		return len(r.keys) / 4
	}
	return len(r.keys) / 16
}

// The last answers: stored, so that the compiler does not remove the lookups.
var sink uint32

func (r *rival) pass(words []string) (string, error) {
	threads, err := strconv.Atoi(words[2])
	if err != nil || threads < 1 {
		return "", fmt.Errorf("pass: burst or chain, keys a call, threads")
	}
	count := r.count()
	if count == 0 {
		return "", fmt.Errorf("pass: keys come first")
	}
	var out []uint32
	if len(words) == 4 {
		bytes, err := mapped(words[3], true)
		if err != nil {
			return "", err
		}
		defer syscall.Munmap(bytes)
		if len(bytes) < count*4 {
			return "", fmt.Errorf("pass: no room for the answers")
		}
		out = unsafe.Slice((*uint32)(unsafe.Pointer(&bytes[0])), count)
	}
	debug.SetGCPercent(-1)
	defer debug.SetGCPercent(100)
	section := (count + threads - 1) / threads
	answers := make([]string, threads)
	var ready, done sync.WaitGroup
	ready.Add(threads)
	done.Add(threads)
	for i := range threads {
		go func() {
			// Never unlocked, so that the thread, which is bound to one CPU, ends with the goroutine.
			runtime.LockOSThread()
			defer done.Done()
			pin(i)
			ready.Done()
			ready.Wait()
			first, last := min(i*section, count), min((i+1)*section, count)
			start := clock()
			hop := r.look(first, last, words[0] == "chain", out)
			answers[i] = fmt.Sprintf("%d:%.9f", last-first, clock()-start)
			if i == 0 {
				sink = hop
			}
		}()
	}
	done.Wait()
	return strings.Join(answers, " "), nil
}

func (r *rival) latency(word string) (string, error) {
	chain, err := strconv.Atoi(word)
	if err != nil || chain < 1 || chain > r.count() {
		return "", fmt.Errorf("latency: a number of lookups, at most as many as keys")
	}
	debug.SetGCPercent(-1)
	defer debug.SetGCPercent(100)
	times := make([]float64, r.count()/chain)
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		runtime.LockOSThread()
		pin(0)
		for i := range times {
			start := time.Now()
			sink = r.look(i*chain, (i+1)*chain, true, nil)
			times[i] = float64(time.Since(start).Nanoseconds()) / float64(chain)
		}
	}()
	done.Wait()
	slices.Sort(times)
	answer := strconv.Itoa(len(times))
	for _, place := range []int{500, 900, 990, 999} {
		answer += fmt.Sprintf(" %.3f", times[(len(times)-1)*place/1000])
	}
	return answer, nil
}
