import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** One client of some library. */
abstract class Peer {
    /** What came. */
    record Message(String topic, String payload, int qos, boolean retain) {}

    /** Where to connect, and how. */
    record Place(String host, int port, int version, boolean framed, String topic) {
        String uri() {
            return framed ? "ws://" + host + ":" + port + "/mqtt" : "tcp://" + host + ":" + port;
        }
    }

    static final int PATIENCE_S = 10;
    static final int KEPT_S = 60;

    final BlockingQueue<Message> inbox = new LinkedBlockingQueue<>();

    /** Connects and returns Session Present; {@code will} is a topic or null. */
    abstract boolean connect(Place place, String name, boolean clean, String will) throws Exception;

    /** Returns when the SUBACK has come. */
    abstract void subscribe(String filter, int qos) throws Exception;

    /** Returns when the flow has ended. */
    abstract void publish(Message message) throws Exception;

    abstract void close() throws Exception;
}
