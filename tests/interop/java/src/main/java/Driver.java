import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/** The checks: {@code Driver hivemq|paho RELEASE HOST PORT VERSION TRANSPORT TOPIC}. */
public final class Driver {
    private interface Check {
        void run() throws Exception;
    }

    private final String[] words;
    private final Supplier<Peer> library;
    private final Peer.Place place;
    private final List<Peer> open = new ArrayList<>();

    private Driver(String[] words) {
        this.words = words;
        int version = Integer.parseInt(words[4]);
        boolean framed = words[5].equals("websocket");
        place = new Peer.Place(words[2], Integer.parseInt(words[3]), version, framed, words[6]);
        if (words[0].equals("hivemq")) {
            library = version == 5 ? HiveMq.Five::new : HiveMq.Three::new;
        } else {
            library = version == 5 ? PahoFive::new : PahoThree::new;
        }
    }

    private Peer open(String name) throws Exception {
        Peer one = library.get();
        one.connect(place, name, true, null);
        open.add(one);
        return one;
    }

    private static List<Peer.Message> take(Peer one, int count) throws Exception {
        List<Peer.Message> found = new ArrayList<>();
        while (found.size() < count) {
            var message = one.inbox.poll(Peer.PATIENCE_S, TimeUnit.SECONDS);
            if (message == null) {
                throw new IllegalStateException(found.size() + " of " + count + " messages came");
            }
            found.add(message);
        }
        return found;
    }

    private static void expect(List<Peer.Message> found, List<Peer.Message> wanted) {
        if (!found.equals(wanted)) {
            throw new IllegalStateException("wanted " + wanted + ", got " + found);
        }
    }

    private static List<Peer.Message> numbers(String topic, int count, int qos) {
        return IntStream.range(0, count)
                .mapToObj(number -> new Peer.Message(topic, String.valueOf(number), qos, false))
                .toList();
    }

    private static void publishAll(Peer one, List<Peer.Message> all) throws Exception {
        for (var message : all) {
            one.publish(message);
        }
    }

    private void echo(int qos) throws Exception {
        String topic = place.topic() + "/qos" + qos;
        Peer one = open("qos" + qos);
        one.subscribe(topic, qos);
        var all = numbers(topic, 10, qos);
        publishAll(one, all);
        expect(take(one, 10), all);
    }

    private void retained() throws Exception {
        String topic = place.topic() + "/retained";
        Peer one = open("retained");
        one.publish(new Peer.Message(topic, "kept", 1, true));
        one.subscribe(topic, 1);
        expect(take(one, 1), List.of(new Peer.Message(topic, "kept", 1, true)));
        one.publish(new Peer.Message(topic, "", 1, true));
        expect(take(one, 1), List.of(new Peer.Message(topic, "", 1, false)));
    }

    /** The program itself, told to connect with a will; it is killed when it has. */
    private void leave() throws Exception {
        library.get().connect(place, "leaver", true, place.topic() + "/will");
        System.out.println("!");
        Thread.sleep(Long.MAX_VALUE);
    }

    private void will() throws Exception {
        String topic = place.topic() + "/will";
        Peer watcher = open("watcher");
        watcher.subscribe(topic, 1);
        var command = new ArrayList<>(List.of(
                System.getProperty("java.home") + "/bin/java",
                "-cp", System.getProperty("java.class.path"), "Driver"));
        command.addAll(Arrays.asList(words));
        command.add("leave");
        Process leaver = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        int told = leaver.getInputStream().read();
        leaver.destroyForcibly().waitFor();
        if (told < 0) {
            throw new IllegalStateException("the client with the will did not connect");
        }
        expect(take(watcher, 1), List.of(new Peer.Message(topic, "gone", 1, false)));
    }

    private void resume() throws Exception {
        String topic = place.topic() + "/resume";
        Peer first = library.get();
        first.connect(place, "resume", false, null);
        first.subscribe(topic, 1);
        first.close();
        var all = numbers(topic, 3, 1);
        publishAll(open("sender"), all);
        Peer second = library.get();
        boolean present = second.connect(place, "resume", false, null);
        open.add(second);
        if (present != place.version() > 3) {
            throw new IllegalStateException("session present: " + present);
        }
        expect(take(second, 3), all);
    }

    private void shared() throws Exception {
        String topic = place.topic() + "/shared";
        List<Peer> members = List.of(open("member0"), open("member1"));
        for (Peer member : members) {
            member.subscribe("$share/group/" + topic, 1);
        }
        var all = numbers(topic, 10, 1);
        publishAll(open("dealer"), all);
        List<Peer.Message> found = new ArrayList<>();
        for (Peer member : members) {
            found.addAll(take(member, 5));
        }
        found.sort(Comparator.comparing(Peer.Message::payload));
        expect(found, all);
    }

    private void attempt(String name, Check check) {
        try {
            check.run();
            while (!open.isEmpty()) {
                open.remove(open.size() - 1).close();
            }
            System.out.printf("{\"check\": \"%s\", \"ok\": true}%n", name);
        } catch (Exception error) {
            String why = error.toString().replace('\\', '/').replace('"', '\'').replaceAll("\\s+", " ");
            System.out.printf("{\"check\": \"%s\", \"ok\": false, \"why\": \"%s\"}%n", name, why);
        }
    }

    private void conduct() {
        System.out.printf("{\"client\": \"%s\", \"version\": \"%s\"}%n", words[0], words[1]);
        attempt("connect", () -> open("connect"));
        for (int qos = 0; qos < 3; qos++) {
            int level = qos;
            attempt("qos" + qos, () -> echo(level));
        }
        attempt("retained", this::retained);
        attempt("will", this::will);
        attempt("resume", this::resume);
        if (place.version() == 5) {
            attempt("shared", this::shared);
        }
    }

    public static void main(String[] words) throws Exception {
        var driver = new Driver(words);
        if (words.length > 7) {
            driver.leave();
        }
        driver.conduct();
        System.exit(0); // the libraries keep threads
    }
}
